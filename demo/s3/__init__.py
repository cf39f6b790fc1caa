"""The demo of tables on an object store: `make demo-s3`."""
