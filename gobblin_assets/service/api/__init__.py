"""The REST API of the service: ``/api/v1``, and the resources of Rest.li beside it."""
