"""Wire formats: client JSON to Request, answers and errors back to client JSON or SSE."""
