"""gunicorn -c gunicorn.conf.py app:app

The workers are forked before they import the application, so that each opens a service of its own.
"""

bind = "0.0.0.0:8000"
workers = 4
worker_class = "asgi"
preload_app = False
control_socket_disable = True
graceful_timeout = 30  # more than SECONDS of app.py
