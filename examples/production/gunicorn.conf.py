"""gunicorn -c gunicorn.conf.py app:app

The workers are forked before they import the application, so that each opens a service of its own.
"""

bind = "127.0.0.1:8000"  # app.py trusts a header: only the proxy on this host may connect
workers = 4
worker_class = "asgi"
preload_app = False
control_socket_disable = True
graceful_timeout = 30  # more than SECONDS of app.py
