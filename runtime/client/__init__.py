"""The client people import: asyncio first, with a thin blocking twin."""
