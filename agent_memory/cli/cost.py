"""The command cost: computes what a use of memory costs on S3 in a month. No store is opened, no request is sent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

from agent_memory.cli.bill import DAYS, LIST_PRICES, SHARED_APPEND, Bill, Prices, monthly_bill
from agent_memory.cli.output import counted, draw, show_json
from agent_memory.cli.settings import Command, Settings, pass_settings

F = TypeVar("F", bound=Callable[..., Any])
_MOST: Final = 1e12
_CENT: Final = 0.01
_LEFT_OUT: Final = """\
Not included: data transfer out, KMS, versions that the bucket keeps itself, an
audit log; and what each process adds: its first requests, and 1 GET a minute."""


def _checked(_ctx: click.Context, _param: click.Parameter, value: Any) -> Any:
    """Refuse negative numbers, those over a limit, and NaN, which `click.FloatRange` accepts."""
    for number in value if isinstance(value, tuple) else (value,):
        if number is not None and not 0 <= number <= _MOST:
            raise click.BadParameter(f"{number:g} is not a number from 0 to {_MOST:g}")
    return value


def _number(*names: str, text: str) -> Callable[[F], F]:
    return click.option(*names, type=float, callback=_checked, metavar="N", help=text)


@click.command(cls=Command)
@click.option(
    "--agents",
    type=click.IntRange(1, int(_MOST)),
    default=1,
    show_default=True,
    metavar="N",
    help="Number of agents. The numbers of the other options are those of one agent.",
)
@_number("--reads", "read", text="Files read in a day, also stat and exists.")
@_number("--writes", "write", text="Files written in a day.")
@_number("--appends", "append", text="Appends in a day.")
@_number("--edits", "edit", text="Edits in a day.")
@_number("--deletes", "delete", text="Files deleted in a day.")
@_number("--lists", "list", text="Listings in a day, of up to 1,000 names each.")
@_number("--megabytes", text="Megabytes stored, versions included.")
@click.option("--shared", is_flag=True, help="Several processes append to the same files.")
@click.option("--versions", is_flag=True, help="The store keeps versions.")
@click.option(
    "--prices",
    nargs=3,
    type=float,
    callback=_checked,
    metavar="PUT GET GB",
    help="Other prices in dollars: of 1,000 requests of the class PUT, of 1,000 of the class GET, of a GB-month.",
)
@pass_settings
def cost(
    settings: Settings,
    /,
    agents: int,
    megabytes: float | None,
    shared: bool,
    versions: bool,
    prices: tuple[float, float, float] | None,
    **counts: float | None,
) -> None:
    """Compute what a use of memory costs on S3 in a month of 30 days.

    Multiplies the requests of each operation by list prices. No store is opened, and no request is sent.
    """
    operations = {operation: count for operation, count in counts.items() if count is not None}
    if not operations and megabytes is None:
        raise click.UsageError("give at least one number, for example --reads 200 --appends 50")
    if shared:
        operations[SHARED_APPEND] = operations.pop("append", 0)
    known = Prices(*prices, "given by --prices") if prices else LIST_PRICES
    bill = monthly_bill(agents, operations, megabytes or 0, known, versions=versions)
    if settings.json:
        _show_json(bill, agents)
    else:
        _show(bill, agents)


def _show_json(bill: Bill, agents: int) -> None:
    show_json(
        {
            "agents": agents,
            "days": DAYS,
            "prices": bill.prices._asdict(),
            "requests": {name: round(number) for name, number in bill.requests.items()},
            "gigabytes": round(bill.gigabytes, 6),
            "dollars": {name: round(amount, 6) for name, amount in bill.dollars.items()},
        }
    )


def _show(bill: Bill, agents: int) -> None:
    from rich import box
    from rich.table import Table

    prices, dollars = bill.prices, {name: _amount(each) for name, each in bill.dollars.items()}
    put, get, delete = (f"{round(bill.requests[name]):,}" for name in ("put", "get", "delete"))
    table = Table(box=box.SIMPLE)
    table.add_column("in a month")
    for title in ("number", "price", "cost"):
        table.add_column(title, justify="right")
    table.add_row("requests PUT, COPY, POST, LIST", put, f"${prices.put:g} per 1,000", dollars["put"])
    table.add_row("requests GET, HEAD", get, f"${prices.get:g} per 1,000", dollars["get"])
    table.add_row("requests DELETE", delete, "free", dollars["delete"])
    table.add_row("GB stored", f"{bill.gigabytes:,.3f}", f"${prices.gigabyte:g}", dollars["storage"])
    table.add_row("total", "", "", dollars["total"])
    draw(table)
    click.echo(f"{counted(agents, 'agent')}, {DAYS} days. Prices: {prices.source}, in US dollars.")
    click.echo(_LEFT_OUT)


def _amount(dollars: float) -> str:
    return f"under ${_CENT}" if 0 < dollars < _CENT else f"${dollars:,.2f}"
