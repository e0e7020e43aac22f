"""The paper's figures as printed: mean±sd of ten seeds; the digits are the paper's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class PaperFigure:
    """A figure of the paper: a mean and its standard deviation, with the digits it is printed with."""

    mean: float
    sd: float | None
    digits: int

    @classmethod
    def of(cls, text: str) -> PaperFigure | None:
        """The figure in a text as 63.7±0.0 or 97.2; None for –."""
        if text == "–":
            return None
        mean, _, sd = text.partition("±")
        return cls(float(mean), float(sd) if sd else None, len(mean.partition(".")[2]))


# -- Table 1 ------------------------------------------------------------------------------------------------------

CLUSTERING = """
mnist agg 63.7±0.0 78.6±0.0 69.5±0.0 71.1±0.0
mnist vae 79.9±2.2 90.8±1.4 86.6±4.9 81.6±2.0
mnist laddervae 81.6±3.9 90.9±2.5 80.3±5.6 82.0±2.1
mnist deepect 74.6±5.9 90.7±3.2 74.9±6.2 76.7±4.2
mnist treevae 87.9±4.9 96.0±1.9 90.2±7.5 90.0±4.6
mnist bisecting – – – –
mnist hdbscan – – – –
fashion agg 45.0±0.0 67.6±0.0 51.3±0.0 52.6±0.0
fashion vae 44.3±2.5 65.9±2.3 54.9±4.4 56.1±3.2
fashion laddervae 49.5±2.3 67.6±1.2 55.9±3.0 60.7±1.4
fashion deepect 44.9±3.3 67.8±1.4 51.8±5.7 57.7±3.7
fashion treevae 54.4±2.4 71.4±2.0 63.6±3.3 64.7±1.4
fashion bisecting – – – –
fashion hdbscan – – – –
news20 agg 13.1±0.0 30.8±0.0 26.1±0.0 27.5±0.0
news20 vae 7.1±0.3 18.1±0.5 15.2±0.4 11.6±0.3
news20 laddervae 9.0±0.2 20.0±0.7 17.4±0.9 17.8±0.6
news20 deepect 9.3±1.8 17.2±3.8 15.6±3.0 18.1±4.1
news20 treevae 17.5±1.5 38.4±1.6 32.8±2.3 34.4±1.5
news20 bisecting – – – –
news20 hdbscan – – – –
omniglot5 agg 41.4±0.0 63.7±0.0 53.2±0.0 33.3±0.0
omniglot5 vae 46.3±2.3 68.1±1.6 52.9±4.2 34.4±2.9
omniglot5 laddervae 49.8±3.9 71.3±2.0 59.6±4.9 44.2±4.7
omniglot5 deepect 33.3±2.5 55.1±2.8 41.1±4.2 23.5±4.3
omniglot5 treevae 58.8±4.0 77.7±3.9 63.9±7.0 50.0±5.9
omniglot5 bisecting – – – –
omniglot5 hdbscan – – – –
cifar10 vae 10.54±0.12 16.33±0.15 14.43±0.19 1.86±1.66
cifar10 laddervae 12.81±0.20 25.37±0.62 19.29±0.60 7.41±0.42
cifar10 deepect 10.01±0.02 10.30±0.40 10.31±0.39 0.18±0.10
cifar10 treevae 35.30±1.15 53.85±1.23 52.98±1.34 41.44±1.13
cifar100 vae 5.27±0.02 9.86±0.19 8.82±0.11 2.46±0.10
cifar100 laddervae 6.36±0.07 16.08±0.28 14.01±0.41 8.99±0.41
cifar100 deepect 5.28±0.18 6.97±0.69 6.97±0.69 1.71±0.86
cifar100 treevae 10.44±0.38 24.16±0.65 21.82±0.77 17.80±0.42
"""

# -- Table 2 ------------------------------------------------------------------------------------------------------

GENERATIVE = """
mnist vae -101.9±0.2 87.2±0.3 -104.6±0.3
mnist laddervae -99.9±0.5 87.8±0.7 -103.2±0.7
mnist treevae -92.9±0.2 80.3±0.2 -96.8±0.2
fashion vae -242.2±0.2 231.7±0.5 -245.4±0.5
fashion laddervae -239.4±0.5 231.5±0.6 -243.0±0.6
fashion treevae -234.7±0.1 226.5±0.3 -239.2±0.4
news20 vae -44.26±0.01 45.52±0.03 -44.61±0.01
news20 laddervae -44.30±0.03 43.52±0.03 -44.62±0.02
news20 treevae -51.67±0.59 45.83±0.36 -52.79±0.66
omniglot vae -115.3±0.3 101.6±0.3 -118.2±0.3
omniglot laddervae -113.1±0.5 100.7±0.7 -117.5±0.6
omniglot treevae -110.4±0.5 96.9±0.5 -114.6±0.4
"""

# -- Table 3 ------------------------------------------------------------------------------------------------------

# what the paper calls it, the attribute in a record (whose last two records.py makes of CelebA's), whether its absence
# is meant, and the frequency in each of eight leaves
ATTRIBUTES = (
    ("Female", "Male", True, "97.2 55.0 97.7 86.6 23.1 30.7 46.6 43.7"),
    ("Bangs", "Bangs", False, "1.6 1.2 24.1 61.7 3.4 11.1 9.1 11.4"),
    ("Blonde", "Blond_Hair", False, "1.1 3.7 66.7 2.2 5.8 2.6 26.1 7.1"),
    ("Makeup", "Heavy_Makeup", False, "75.7 43.4 76.6 59.7 15.0 12.4 16.3 12.8"),
    ("Smiling", "Smiling", False, "54.3 66.6 66.4 51.2 54.7 42.4 37.3 22.4"),
    ("Hair Loss", "Hair_Loss", False, "3.6 17.8 3.0 0.2 18.9 6.9 21.2 10.6"),
    ("Beard", "Beard", False, "1.1 20.6 0.4 3.7 39.5 36.5 21.3 21.4"),
)

# -- a first try --------------------------------------------------------------------------------------------------

DIGITS = """
digits treevae – – – –
digits vae – – – –
digits laddervae – – – –
digits deepect – – – –
digits agg – – – –
digits bisecting – – – –
digits hdbscan – – – –
"""

# -- ablations ----------------------------------------------------------------------------------------------------

Z_SMALL, Z_MIDDLE, Z_LARGE = [2, 4, 8, 16, 32, 64], [4, 8, 16, 32, 64, 128], [8, 16, 32, 64, 128, 256]
H_SMALL, H_MIDDLE, H_LARGE = [8, 16, 32, 64, 128], [16, 32, 64, 128, 256], [32, 64, 128, 256, 512]
SIZES: tuple[tuple[str, dict[str, Any], str], ...] = (
    ("base", {}, "63.5±4.1 63.9±2.2 -239.2±0.3"),
    ("(A) z of 2", {"latent_dim": 2}, "49.8±4.0 51.8±2.7 -249.5±0.4"),
    ("(A) z of 4", {"latent_dim": 4}, "60.0±4.7 61.0±3.7 -242.6±0.4"),
    ("(A) z of 16", {"latent_dim": 16}, "61.0±4.5 63.0±2.4 -238.8±0.4"),
    ("(A) z of 32", {"latent_dim": 32}, "62.7±4.4 63.5±2.8 -238.7±0.4"),
    ("(B) MLPs of 16", {"hidden_dim": 16}, "58.3±3.5 60.6±2.1 -241.5±0.3"),
    ("(B) MLPs of 32", {"hidden_dim": 32}, "60.6±3.6 62.7±2.5 -240.4±0.4"),
    ("(B) MLPs of 64", {"hidden_dim": 64}, "62.6±3.8 63.5±1.4 -239.6±0.3"),
    ("(B) MLPs of 256", {"hidden_dim": 256}, "62.3±4.9 63.4±3.9 -239.2±0.4"),
    ("(C) z 2…64, MLPs 8…128", {"latent_dim": Z_SMALL, "hidden_dim": H_SMALL}, "56.7±4.0 59.9±3.1 -239.2±0.4"),
    ("(C) z 2…64, MLPs 16…256", {"latent_dim": Z_SMALL, "hidden_dim": H_MIDDLE}, "60.9±5.3 62.6±2.4 -238.6±0.3"),
    ("(C) z 4…128, MLPs 8…128", {"latent_dim": Z_MIDDLE, "hidden_dim": H_SMALL}, "58.5±4.4 61.3±2.5 -239.1±0.4"),
    ("(C) z 4…128, MLPs 16…256", {"latent_dim": Z_MIDDLE, "hidden_dim": H_MIDDLE}, "62.6±3.4 63.6±1.5 -238.8±0.3"),
    ("(C) z 8…256, MLPs 16…256", {"latent_dim": Z_LARGE, "hidden_dim": H_MIDDLE}, "61.1±3.7 61.7±2.9 -238.9±0.3"),
    ("(C) z 8…256, MLPs 32…512", {"latent_dim": Z_LARGE, "hidden_dim": H_LARGE}, "60.5±4.7 61.1±3.1 -239.1±0.3"),
    ("(D) MLPs of 2 layers", {"transformation_layers": 2}, "60.3±5.3 61.6±3.5 -239.0±0.3"),
    ("(D) MLPs of 3 layers", {"transformation_layers": 3}, "61.4±4.2 62.9±3.2 -239.0±0.3"),
    ("(E) routers of 1 layer", {"router_layers": 1}, "59.6±4.0 62.3±2.0 -239.2±0.4"),
    ("(E) routers of 3 layers", {"router_layers": 3}, "62.1±4.4 63.6±3.1 -239.1±0.4"),
    ("(F) 5 levels", {"max_depth": 4}, "64.0±4.6 64.4±2.7 -239.2±0.3"),  # counted with the root, as depth is not
    ("(F) 7 levels", {"max_depth": 6}, "61.0±4.9 62.9±2.9 -239.2±0.3"),
    ("(F) 8 levels", {"max_depth": 7}, "62.1±5.2 63.6±2.7 -239.1±0.4"),
)
ON_FASHION = "63.6±3.3 64.7±1.4 -234.7±0.1 226.5±0.3 -239.2±0.4"  # TreeVAE, in two ablations
MATCHED = "56.4±1.9 62.3±2.0 -233.7±0.1 224.8±0.3 -238.9±0.3"
FIXED = "35.1±4.8 54.1±5.8 -237.4±0.4 228.9±0.5 -241.0±0.5"
LOSSES: tuple[tuple[str, dict[str, Any], str], ...] = (
    ("both, (A) + (B)", {}, "44.1±0.7"),
    ("(A) routers", {"contrastive_loss": "routers"}, "21.7±4.0"),
    ("(B) bottom-up", {"contrastive_loss": "bottom_up"}, "6.0±6.0"),
    ("(C) routers, transposed", {"contrastive_loss": "transposed"}, "23.0±1.2"),
    ("(D) encoder only", {"contrastive_loss": "encoder"}, "0.2±0.0"),
    ("(E) Jensen-Shannon of routers", {"contrastive_loss": "jensen_shannon"}, "1.0±1.3"),
)
PREDICTED = ((10, "15.99±0.85"), (20, "17.80±0.42"), (32, "19.33±0.41"))
