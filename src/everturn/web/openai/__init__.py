"""The OpenAI chat API, served by the agent or by a bare model."""
