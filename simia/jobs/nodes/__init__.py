"""Work on a job from several nodes: workers ask models, check and play there, and the job's one coordinator plans and accepts.

The job's process holds the engines, hence one pace and one budget for each endpoint over all nodes, and the run, hence one durable
copy of each reply. A worker is a process on a node. It makes the results of items; each question on the way goes through the job's
engine, which sends it through a worker. So a result is the one that a single process makes of the same replies.
"""
