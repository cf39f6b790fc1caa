"""File systems as the commit protocol needs them: no-replace renames, explicit durability, honest listings."""
