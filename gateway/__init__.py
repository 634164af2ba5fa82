"""Serving: the HTTP front, the request path, settings and the command line."""
