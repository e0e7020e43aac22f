"""What the explorer is asked and what it answers, as JSON; the OpenAPI description is made of these."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

MOST_SAMPLES = 64  # of one call to generate
MOST_STEPS = 16  # of one interpolation
MOST_NUMBERS = 100_000  # in a row to place
MOST_LETTERS = 100_000  # in a text to place
HOTTEST = 2.0
NUMBER = 2**31 - 1  # the largest number that a node or a sample may be asked by
SEEDS = 2**32 - 1  # the largest seed that numpy takes

Seed = Annotated[int, Field(ge=0, le=SEEDS, description="The same seed gives the same answer.")]
SampleNumber = Annotated[int, Field(ge=0, le=NUMBER, description="A sample of the bundle, counted from 0.")]
Probability = Annotated[float, Field(ge=0, le=1.000001)]  # sums are rounded


class Question(BaseModel):
    """What all requests share: nothing is guessed or ignored."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Generate(Question):
    """New samples that pass through a node."""

    node: Annotated[int, Field(ge=0, le=NUMBER, description="A node of the tree; 0 is the root.")]
    n: Annotated[int, Field(ge=1, le=MOST_SAMPLES)] = 16
    seed: Seed = 0
    temperature: Annotated[
        float, Field(ge=0, le=HOTTEST, allow_inf_nan=False, description="Scales the spread of the latents.")
    ] = 1.0

    model_config = ConfigDict(json_schema_extra={"examples": [{"node": 0, "n": 8, "seed": 1, "temperature": 0.7}]})


class Walk(Question):
    """A walk through all leaves: of a sample or, without one, of a draw of the root."""

    sample: SampleNumber | None = None
    seed: Annotated[Seed, Field(description="Of the draw, where no sample is named.")] = 0

    model_config = ConfigDict(json_schema_extra={"examples": [{"sample": 0}, {"seed": 3}]})


class Place(Question):
    """A new sample to place in the tree: a row of numbers, or a text where the model was fitted on known words."""

    row: Annotated[
        list[Annotated[float, Field(allow_inf_nan=False)]],
        Field(min_length=1, max_length=MOST_NUMBERS, description="In the order and units of the training data."),
    ] = Field(default_factory=list)
    text: Annotated[str, Field(min_length=1, max_length=MOST_LETTERS)] = ""

    model_config = ConfigDict(
        json_schema_extra={
            "oneOf": [{"required": ["row"]}, {"required": ["text"]}],
            "examples": [{"row": [5.1, 3.5, 1.4, 0.2]}, {"text": "the shuttle reached its orbit"}],
        }
    )

    @model_validator(mode="after")
    def _one(self) -> Place:
        if len(self.model_fields_set) != 1:
            raise ValueError("should hold a row of numbers or a text, and not both")
        return self


class Interpolate(Question):
    """The way from one sample of the bundle to another."""

    a: SampleNumber
    b: SampleNumber
    steps: Annotated[int, Field(ge=2, le=MOST_STEPS, description="Both ends included.")] = 8

    model_config = ConfigDict(json_schema_extra={"examples": [{"a": 0, "b": 1, "steps": 8}]})


class Entry(BaseModel):
    """A feature or a word, and its value."""

    name: str
    value: float
    z: Annotated[float | None, Field(description="In standard deviations from the mean of the samples.")] = None


class Picture(BaseModel):
    """A sample to look at: a picture as a data URL, or its most telling features."""

    png: str | None = None
    card: list[Entry] | None = None


class Generated(BaseModel):
    """New samples."""

    node: int
    seed: int
    temperature: float
    samples: list[Picture]


class Share(BaseModel):
    """A leaf and how probable it is."""

    leaf: Annotated[int, Field(description="Its node.")]
    cluster: Annotated[int, Field(description="Its number among the leaves, from left to right.")]
    probability: Probability


class Shown(Share):
    """A leaf, how probable it is, and what it makes of a sample."""

    picture: Picture


class Walked(BaseModel):
    """What every leaf makes of one sample, or of one draw of the root."""

    sample: int | None = None
    seed: int
    leaves: list[Shown]


class Step(BaseModel):
    """A node on the way to a leaf, and the probability of coming there."""

    node: int
    probability: Probability


class Placed(BaseModel):
    """Where a sample belongs."""

    leaf: Annotated[int, Field(description="The node of its most probable leaf.")]
    cluster: int
    path: Annotated[list[Step], Field(description="From the root; nodes that have one child are passed over.")]
    leaves: list[Share]
    sample: Annotated[Picture, Field(description="The sample as the model saw it.")]
    reconstruction: Annotated[Picture, Field(description="On a card it has the lines of the sample's.")]


class Interpolated(BaseModel):
    """Samples on the way from one to another, each with its most probable leaf."""

    a: int
    b: int
    frames: list[Shown]


class Growing(BaseModel):
    """How far a training run has come, as it was last saved."""

    stage: str | None = None
    leaf: Annotated[int | None, Field(description="The node whose children are being trained.")] = None
    epoch: int | None = None
    epochs: int | None = None
    loss: Annotated[float | None, Field(description="Of the last epoch, as it was trained, in nats a sample.")] = None
    progress: Annotated[float, Field(description="Share of all expected work, 0 to 1.")] = 0.0
    seconds: float = 0.0
    saves: Annotated[int, Field(description="How often the state was saved; it says whether anything is new.")] = 0
    saved_at: Annotated[str | None, Field(description="When it was last saved, ISO 8601.")] = None
    losses: Annotated[list[float], Field(description="Of all epochs so far, thinned.")] = []
    stages: Annotated[list[int], Field(description="Positions in losses where a stage begins.")] = []


class TreeShape(BaseModel):
    """The nodes of a tree, parents first, and the parent of each; the root has none."""

    nodes: list[int]
    parents: list[int | None]


class Status(BaseModel):
    """What there is to see: a run in training, a model that is being prepared, or the whole explorer."""

    state: Annotated[str, Field(pattern="^(training|preparing|ready|failed)$")]
    title: str
    tree: TreeShape | None = None
    growing: Growing | None = None
    error: str | None = None


class Failure(BaseModel):
    """Why there is no answer: the field, its value, what is allowed."""

    error: str


def documented(*codes: int) -> dict[int | str, dict[str, Any]]:
    """The failures that a call may answer with, for its OpenAPI description."""
    why = {
        400: "The body is not what its type says, or the request is malformed.",
        401: "A token is needed, and was not given.",
        403: "The request comes from another site.",
        408: "The body came too slowly.",
        409: "The run is still training; the model cannot be asked yet.",
        413: "The body is too large.",
        415: "The body is of another type.",
        421: "The Host header does not name this server.",
        422: "A field is missing, unknown, or out of its range.",
        503: "Too many requests wait already; try again after Retry-After seconds.",
    }
    return {code: {"model": Failure, "description": why[code]} for code in codes}
