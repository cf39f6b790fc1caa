"""Files at names that are new with each publication: directories on disks, single files in stores and on HDFS."""
