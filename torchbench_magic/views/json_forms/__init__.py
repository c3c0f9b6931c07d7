"""Results as JSON that scripts, bots and assistants read: one envelope, what each kind adds, and its schema."""
