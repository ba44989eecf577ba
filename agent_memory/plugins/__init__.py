"""The plugins of this package: one module per plugin, without access to anything but the plugin interface."""
