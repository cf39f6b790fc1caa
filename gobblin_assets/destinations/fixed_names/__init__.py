"""Files at names that the source gives, which all publications use: trees on disks, prefixes of stores."""
