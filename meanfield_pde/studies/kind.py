"""What a kind of study computes and reports.

Data in: jobs. Data out: arrays of each job, the rows of the study's table, lines of text.
"""

from typing import Any, ClassVar

from meanfield_pde.files.tables import Table
from meanfield_pde.studies.jobs import Arrays, Job


class Kind:
    """A kind of study: a frozen dataclass whose fields are its options. A class states what differs from the defaults here.

    name: in files. first_column: of the table, after the parameters. samplings: the ways of `Particles` to sample that it knows.
    reported: the options that only the report and the picture depend on. limit_comes_first: jobs of tokens are given the arrays of the
    limit of their parameter set. limit_per_run: the limit has runs too, one for each of the tokens'.
    """

    name: ClassVar[str]
    first_column: ClassVar[str] = "t"
    samplings: ClassVar[tuple[str, ...]] = ("independent", "stratified")
    reported: ClassVar[tuple[str, ...]] = ()
    limit_comes_first: ClassVar[bool] = False
    limit_per_run: ClassVar[bool] = False

    def limit(self, job: Job) -> Arrays:
        """What is stored of the limit."""
        raise NotImplementedError

    def tokens(self, job: Job, limit: Arrays | None) -> Arrays:
        """What is stored of the runs of a job, one run after the other along the first axes."""
        raise NotImplementedError

    def summary(self, limit: Arrays | None, tokens: dict[int, Arrays], job: Job) -> list[dict[str, Any]]:
        """The rows of one parameter set; tokens: the arrays of all runs of each n."""
        raise NotImplementedError

    def arrays(self, table: Table) -> Arrays:
        """The table's content as arrays, where that is its natural form; none otherwise."""
        return {}

    def report(self, table: Table) -> list[str]:
        """What the table says, a line each."""
        raise NotImplementedError
