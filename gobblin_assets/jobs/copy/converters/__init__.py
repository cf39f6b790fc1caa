"""Converters of copies: what becomes of a file's bytes and of its name on the way, step by step.

    converter_port  the three shapes of converters (streams, unpackers, packers), and bytes in bounded memory
    chain           the converters of one dataset, in order, the names that they give, and what an archive may hold
    compression     gunzip, bunzip2, unzstd, unlz4, gzip and zstd
    gpg             decryption and encryption by the program ``gpg``
    tar_archives    reading and writing tar; ``zip_archives``: zip
    listing         a source's listing as it is after conversion, which is what plans compare

A package offers further kinds by entry points of the group ``gobblin_assets.copy_converters``.
"""
