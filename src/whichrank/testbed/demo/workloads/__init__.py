"""Training scripts as users write them, one per way of using torch.distributed.

They know nothing of faults or of whichrank, and are the targets of faults applied from outside (`demo.outside`). Each
takes ``--steps`` and starts under torchrun or the preloaded launcher:
``torchrun --nproc-per-node 4 -m whichrank.testbed.demo.workloads.ddp --steps 100``.
"""
