"""The native backend of waxeq: generated C, compiled by the machine's own compiler, on threads that stay alive."""
