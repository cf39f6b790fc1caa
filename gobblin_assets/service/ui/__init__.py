"""The pages of the service: rendered by the server, over the functions that the REST API calls."""
