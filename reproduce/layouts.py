"""What each table is: its columns, the protocol its runs share, and its published rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from reproduce import verdicts
from reproduce.aggregate import Column, Group
from reproduce.published import AVERAGE
from scd_core.evaluation.labelled import TRANSFER
from scd_core.evaluation.protocols import DEFAULT
from scd_core.evaluation.tasks import STS_TEST

Name = Literal["table1", "table2", "table3", "fidelity", "figure2"]


@dataclass(frozen=True)
class Layout:
    """A table before anything is measured."""

    name: Name
    """Also the stem of its files."""
    title: str
    columns: tuple[Column, ...]
    protocol_tag: str
    """Tag of a run that holds the fingerprint of the evaluation protocol of these columns."""
    published: tuple[str, ...]
    """Files of published rows, in order."""
    rule: str
    """How its verdicts are made."""
    remarks: tuple[str, ...] = ()
    """What a reader must know of the published figures."""
    ablation: bool = False
    """Of the rows that the paper does not have, only SCD's and those of untrained [CLS] belong."""

    def shows(self, group: Group) -> bool:
        """Whether a row that the paper does not have belongs in this table."""
        setting = group.setting
        if not self.ablation:
            return True
        return setting.method == "scd" or (setting.method, setting.pooling) == ("embedding", "cls")


_STS = {task.title: f"test.{task.name}.spearman_all" for task in STS_TEST}
_YEARS = tuple(_STS[f"STS{year}"] for year in range(12, 17))
_MEAN = Column(AVERAGE, tuple(_STS.values()))
_ABLATION = (
    Column("STS", _YEARS),
    Column("STS-B", (_STS["STS-B"],)),
    Column("SICK-R", (_STS["SICK-R"],)),
)
_TRANSFER = {
    {"SST2": "SST"}.get(task.title, task.title): f"test.{task.name}.accuracy_{DEFAULT}"
    for task in TRANSFER
}
STS_PROTOCOL, TRANSFER_PROTOCOL = "scd.protocol", "scd.protocol.transfer"

LAYOUTS: dict[Name, Layout] = {
    layout.name: layout
    for layout in (
        Layout(
            "table1",
            "Table 1: STS test sets, Spearman x 100, all pairs of a task pooled",
            (*(Column(title, (key,)) for title, key in _STS.items()), _MEAN),
            STS_PROTOCOL,
            ("table1",),
            verdicts.RULE_FIGURE,
        ),
        Layout(
            "table2",
            f"Table 2: transfer tasks, test accuracy in %, classifier {DEFAULT}",
            (
                *(Column(title, (key,)) for title, key in _TRANSFER.items()),
                Column(AVERAGE, tuple(_TRANSFER.values())),
            ),
            TRANSFER_PROTOCOL,
            ("table2", "table2-later"),
            verdicts.RULE_FIGURE,
            (
                "MR and SUBJ of SCD-BERT and of SimCSE-RoBERTa as published are, by all signs, of "
                "a damaged copy of the data, on which a constant guess scores 99.60 on SUBJ: they "
                "and their averages compare with nothing measured on whole data.",
                "The seven cells of Avg. BERT embeddings average 84.95; the paper prints 84.94.",
            ),
        ),
        Layout(
            "table3",
            "Table 3: ablation, Spearman x 100; STS is the mean of STS12 to STS16 alone",
            _ABLATION,
            STS_PROTOCOL,
            ("table3",),
            verdicts.RULE_FIGURE,
            ablation=True,
        ),
        Layout(
            "fidelity",
            "Fidelity: SCD with one difference between paper and released code switched at a time, "
            "Spearman x 100; STS is the mean of STS12 to STS16",
            (*_ABLATION, _MEAN),
            STS_PROTOCOL,
            (),
            verdicts.RULE_ROW,
        ),
        Layout(
            "figure2",
            "Figure 2: alignment and uniformity (the smaller, the better) and the STS average",
            (
                Column("alignment", ("test.geometry.alignment",)),
                Column("uniformity", ("test.geometry.uniformity",)),
                _MEAN,
            ),
            STS_PROTOCOL,
            ("figure2",),
            verdicts.RULE_FIGURE,
        ),
    )
}
"""By name, in the order in which they are shown."""
