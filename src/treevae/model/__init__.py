"""The paper's model: networks, descent, ELBO. Nothing here knows how it is trained."""
