"""Google Cloud Storage and Azure's Blob Storage, as sources of copies, by obstore.

    settings   how a store is reached, from the environment
    answers    failures as families of errors: never the client's own text, which repeats URLs and bodies
    client     one bucket: requests that are sent again within bounds
    listing    keys in byte order, from listings whose keys lost the slash at their end
    objects    the port ``fs.objects.ReadableObjects``
    opening    the registration of the schemes

All requests only read, so that each may be sent again.
"""
