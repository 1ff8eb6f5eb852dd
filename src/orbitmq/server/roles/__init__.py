"""What a server is: broker, name server, and what a broker does when it starts and registers."""
