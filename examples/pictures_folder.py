"""A folder of pictures, sorted: png, jpg or bmp of one size, subfolders included.

    python examples/pictures_folder.py ~/thumbnails
    python examples/pictures_folder.py            # makes a folder of handwritten digits first

Writes tree.png, and copies of the pictures in one folder for each group. Make large pictures smaller first: up to 64
pixels a side are the right size. Photographs in colour want a GPU, and ``network="resnet"``.
"""

import argparse
import shutil
from pathlib import Path

from PIL import Image
from sklearn.datasets import load_digits

import treevae


def make_pictures(folder: Path, n: int) -> None:
    """Write some of the handwritten digits that come with scikit-learn."""
    folder.mkdir(parents=True, exist_ok=True)
    for i, pixels in enumerate(load_digits().images[:n]):
        Image.fromarray((pixels * 255 / 16).astype("uint8")).save(folder / f"{i:04}.png")


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("folder", type=Path, nargs="?", help="with the pictures; without one some are made")
    asked.add_argument("--groups", type=int, default=8, help="how many to grow to")
    asked.add_argument("--epochs", type=int, default=30, help="more take longer and are better")
    asked.add_argument("--out", type=Path, default=Path("pictures-tree"), help="the folder to write into")
    args = asked.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    if args.folder is None:
        args.folder = args.out / "pictures"
        make_pictures(args.folder, 1000)

    pictures = treevae.data.read(args.folder)
    model = treevae.TreeVAE(args.groups, epochs=args.epochs, random_state=0, verbose=True)
    labels = model.fit_predict(pictures.X)

    print(model.tree_)
    for name, group in zip(pictures.sample_names or (), labels, strict=True):
        place = args.out / "sorted" / f"group {group}" / name
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(args.folder / name, place)
    treevae.plot.tree(model, pictures.X).savefig(args.out / "tree.png")
    print(f"{len(labels):,} pictures are sorted in {args.out / 'sorted'}; look at {args.out / 'tree.png'}")


if __name__ == "__main__":
    main()
