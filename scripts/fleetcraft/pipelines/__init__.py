"""Model families: how each is built, loaded, run and decoded. The only place that imports diffusers."""
