"""The native backend of waxeq: generated C, compiled by the machine's compiler."""
