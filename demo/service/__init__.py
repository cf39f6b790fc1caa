"""The demo of flows as a service: `make demo-service` plays it and compares, `make service` keeps it up."""
