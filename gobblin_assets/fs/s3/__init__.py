"""Object stores that speak S3, by a small client of its own: HTTP by urllib3, signatures of version 4.

    s3_settings   how a store is reached, from the environment
    credentials   keys that were given, or those of AWS's own chain, and signatures by them
    requests      what is asked of a store, and where
    client        requests sent, repeated within bounds, and failures as families of errors
    answers       what a store says, in XML and in headers
    object_files  the port ``fs.objects``, and the registration of the scheme

Each process that copies pays for its imports and for each request. boto3 takes 0.3 s of a processor to make a client,
and several times as long for a request; so botocore is imported only where no keys are given (``credentials``).
"""
