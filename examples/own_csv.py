"""Groups in a csv of your own: a column a feature, a row a sample, all numbers.

    python examples/own_csv.py flowers.csv --drop id --label species
    python examples/own_csv.py                    # makes wine.csv first: 178 wines, 13 measurements

Prints what sets each group apart, in the table's own units; writes groups.csv (the table with each row's group) and
report.html. ``--label`` names a column with known classes, which the model never sees.
"""

import argparse
from pathlib import Path

import pandas as pd
from sklearn.datasets import load_wine
from sklearn.preprocessing import StandardScaler

import treevae

TOLD = 3  # features that are told of a group


def make_wine(path: Path) -> None:
    """Write the wines that come with scikit-learn, with the vineyard in the column "target"."""
    load_wine(as_frame=True).frame.to_csv(path, index=False)


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("csv", type=Path, nargs="?", help="the table; without one wine.csv is made")
    asked.add_argument("--drop", action="append", default=[], metavar="COLUMN", help="a column to leave out")
    asked.add_argument("--label", metavar="COLUMN", help="a column with known classes")
    asked.add_argument("--groups", type=int, default=4, help="how many to grow to")
    asked.add_argument("--epochs", type=int, default=30, help="more take longer and are better")
    asked.add_argument("--out", type=Path, default=Path("csv-tree"), help="the folder to write into")
    args = asked.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    if args.csv is None:
        args.csv, args.label = args.out / "wine.csv", "target"
        make_wine(args.csv)

    table = treevae.data.read(args.csv, drop=args.drop, label=args.label)
    X = StandardScaler().set_output(transform="pandas").fit_transform(table.frame)  # one unit for all features
    model = treevae.TreeVAE(args.groups, epochs=args.epochs, random_state=0, verbose=True)
    labels = model.fit_predict(X)

    print(model.tree_)
    for group, rows in table.frame.groupby(labels):
        apart = X.loc[rows.index].mean()  # in standard deviations from the mean of all
        names = apart.abs().nlargest(TOLD).index
        told = ", ".join(f"{name} {rows[name].mean():.3g} (all: {table.frame[name].mean():.3g})" for name in names)
        print(f"group {group}, {len(rows)} rows: {told}")
    if table.labels is not None:
        print(f"agreement with {args.label} (NMI): {treevae.metrics.nmi(labels, table.labels):.2f}")
    pd.read_csv(args.csv).assign(group=labels).to_csv(args.out / "groups.csv", index=False)
    page = treevae.report(model, X, table.labels, args.out / "report.html", kind="table", title=args.csv.stem)
    print(f"see {args.out / 'groups.csv'}, and open {page} in a browser")


if __name__ == "__main__":
    main()
