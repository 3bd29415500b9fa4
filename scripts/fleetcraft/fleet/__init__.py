"""Fleets: the Slurm allocations of a campaign. The only package that calls commands of Slurm.

A controller looks at what waits in the spool, decides (`decision`, pure) whether an allocation is worth it, submits it
(`slurm`), keeps records of all of them in the spool (`records`), and knows which workers are gone (`oracle`).
"""
