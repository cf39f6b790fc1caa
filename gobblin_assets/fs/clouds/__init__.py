"""Google Cloud Storage and Azure's Blob Storage, as sources of copies, by obstore.

    cloud_settings  how a store is reached, from the environment
    client          one bucket: requests that are sent again within bounds, and failures as families of errors
    cloud_objects   the port ``fs.objects.ReadableObjects``: keys in byte order
    opening         the registration of the schemes

All requests only read, so that each may be sent again.
"""
