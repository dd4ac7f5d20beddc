"""All that an outside backend imports: calls and views, the kernel contract, discovery."""
