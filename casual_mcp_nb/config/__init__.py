"""Read the config file, the environment, `.env` and (in `templates`) the prompt templates."""
