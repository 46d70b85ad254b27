"""What touches the world: storage engine, asyncio shell, TCP, HTTP, console, client."""
