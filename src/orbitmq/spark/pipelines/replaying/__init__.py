"""The pipeline `replay`: messages of an archive or of topics to a topic again."""
