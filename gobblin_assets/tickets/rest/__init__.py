"""The executor's end of a wire over https. The one place of tickets that imports a web framework."""
