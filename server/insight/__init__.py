"""What people ask of running queries: why nothing comes out, what a plan does right now, figures."""
