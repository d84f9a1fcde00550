"""A rank with data-loader workers, forked and spawned; run under torchrun."""

import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset

folder = Path(os.environ["FOLDER"])


class Numbers(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        (folder / f"worker-{os.getpid()}").touch()
        return torch.tensor(float(index))


def main():
    assert list((folder / "rings").glob(f"{os.getpid()}.ring")), "the ring is made by `import torch`"
    dist.init_process_group("gloo")
    for method in ("fork", "spawn"):
        for batch in DataLoader(Numbers(), batch_size=2, num_workers=1, multiprocessing_context=method):
            dist.all_reduce(batch)
    dist.destroy_process_group()
    print(f"rank {os.environ['RANK']} is {os.getpid()}", flush=True)


if __name__ == "__main__":
    main()
