"""Administration: one room per thing that is administrated, and one class that offers them all."""
