"""What is read in the text of a written program: the tools that it calls, in every ordinary way to
write a call.
"""

from __future__ import annotations

import pytest

from casual_mcp_nb.notebook.program_text import read_program

SERVERS = ("shop",)
BURN = "shop.burn"
ALIASES = {
    "a name": "burn = s.tools.shop.burn\nburn(item='x')",
    "two names": "shop = s.tools.shop\nburn = shop.burn\nburn(item='x')",
    "a tuple": "price, burn = s.tools.shop.price, s.tools.shop.burn\nburn(item='x')",
    "a nested tuple": (
        "(price, [burn, *rest]) = (s.tools.shop.price, [s.tools.shop.burn])\nburn(item='x')"
    ),
    "an annotation": "burn: object = s.tools.shop.burn\nburn(item='x')",
    "a walrus": "if burn := s.tools.shop.burn:\n    burn(item='x')",
    "a for": "for burn in (s.tools.shop.burn,):\n    burn(item='x')",
    "a for over pairs": "for burn, item in [(s.tools.shop.burn, 'x')]:\n    burn(item=item)",
    "a comprehension": "results = [burn(item='x') for burn in [s.tools.shop.burn]]",
    "a partial": (
        "from functools import partial\nburn = partial(s.tools.shop.burn, item='x')\nburn()"
    ),
    "a partial of a module": "import functools as f\nf.partial(s.tools.shop.burn, item='x')()",
    "a map": "list(map(s.tools.shop.burn, ['x']))",
    "an executor": (
        "with ThreadPoolExecutor() as pool:\n    pool.submit(s.tools.shop.burn, item='x')"
    ),
    "a with": "with s as open_session:\n    open_session.tools.shop.burn(item='x')",
    "a default": "def work(burn=s.tools.shop.burn):\n    burn(item='x')\nwork()",
    "a lambda": "burn = lambda item: s.tools.shop.burn(item=item)\nburn('x')",
    "a lambda that returns it": "get = lambda: s.tools.shop.burn\nget()(item='x')",
    "a list": "todo = [s.tools.shop.price, s.tools.shop.burn]\ntodo[1](item='x')",
    "a dict": "todo = {'burn': s.tools.shop.burn}\ntodo['burn'](item='x')",
    "values of a dict": (
        "todo = {'burn': s.tools.shop.burn}\nfor f in todo.values():\n    f(item='x')"
    ),
    "a choice": "burn = s.tools.shop.burn if True else s.tools.shop.price\nburn(item='x')",
    "an or": "burn = None or s.tools.shop.burn\nburn(item='x')",
    "getattr": "getattr(s.tools.shop, 'burn')(item='x')",
    "getattr twice": (
        "shop = getattr(s.tools, 'shop')\nburn = getattr(shop, 'burn')\nburn(item='x')"
    ),
    "functions": "f = s.tools.functions\nf.shop.burn(item='x')",
    "an attribute": "class Work:\n    pass\nWork.burn = s.tools.shop.burn\nWork.burn(item='x')",
    "a keyword": "sorted(['x'], key=s.tools.shop.burn)",
    "a return": "def get():\n    return s.tools.shop.burn\nget()(item='x')",
    "a decorator": "@s.tools.shop.burn\ndef work(): ...",
    "a loop that comes first": (
        "while True:\n    if burn: burn(item='x')\n    burn = s.tools.shop.burn"
    ),
    "the name": "s.tools.call('shop:burn', item='x')",
    "the name by keyword": "s.tools.call(name='shop:burn', item='x')",
    "the method": "run = s.tools.call\nrun('shop:burn', item='x')",
}


@pytest.mark.defect("N11")
@pytest.mark.parametrize("way", ALIASES)
def test_each_ordinary_way_to_call_a_tool_is_in_the_table(way: str) -> None:
    read = read_program(ALIASES[way], "s", SERVERS)
    assert {"shop.burn", "shop:burn"}.intersection(name for name, _ in read.calls), read


UNREAD = [
    "helper(s)",
    "helper(s.tools)",
    "helper(shop=s.tools.shop)",
    "getattr(s.tools.shop, name)()",
    "s.tools.call(name, item='x')",
    "list(map(s.tools.call, names))",
    "box = []\nbox.append(s.tools)",
    "self.session = s",
    "def get():\n    return s.tools\nget().shop.burn(item='x')",
    "match s:\n    case other:\n        other.tools.shop.burn(item='x')",
    "globals()['s'].tools.shop.burn(item='x')",
    "eval(\"s.tools.shop.burn(item='x')\")",
    "get_ipython().user_ns['s'].tools.shop.burn()",
    "%time s.tools.shop.burn()",
    "yielded = (yield s)",
]


@pytest.mark.defect("N11")
@pytest.mark.parametrize("code", UNREAD)
def test_what_cannot_be_followed_is_said(code: str) -> None:
    assert not read_program(code, "s", SERVERS).is_followed


FOLLOWED = [
    "total = s.tools.shop.price(item='x')\nprint(total, s.tools.shop.price(item='y'))",
    "for tool in s.tools:\n    print(tool.name, len(s.tools))",
    "s.tools\ns.servers\nf'{s.tools}'",
    "shop = s.tools.shop\nrows = [shop.price(item=each) for each in items]\nrows",
    "names = vars(thing)\nnames.get('x')",
    (
        "with ThreadPoolExecutor() as pool:\n    rows = list(pool.map(lambda item:"
        " s.tools.shop.price(item=item), items))"
    ),
]


@pytest.mark.defect("N11")
@pytest.mark.parametrize("code", FOLLOWED)
def test_a_plain_program_raises_no_alarm(code: str) -> None:
    read = read_program(code, "s", SERVERS)
    assert (read.is_followed, read.remarks) == (True, ())


@pytest.mark.defect("N11")
@pytest.mark.parametrize(
    ("code", "lines"),
    [
        ("import os\nos.system('ls')", {2}),
        ("from os import system as run\nrun('ls')", {2}),
        ("import subprocess as sp\n\nsp.run(['ls'])", {3}),
        ("run = subprocess.Popen\nrun(['ls'])", {1, 2}),
        ("get_ipython().system('ls')", {1}),
        ("name = input('Who?')", {1}),
        ("import shutil\nshutil.rmtree('x')", {2}),
        ("import requests\nrequests.get('https://example.com')", {2}),
        ("requests = []\nrequests.append(1)", set()),
        ("s = None", {1}),
        ("x, s = 1, 2", {1}),
        ("for s in rows:\n    pass", {1}),
        ("del s", {1}),
        ("def s():\n    pass", {1}),
        ("import numpy as s", {1}),
        ("with s:\n    s.tools.shop.price(item='x')", {1}),
        ("s.close()", {1}),
        ("import sys\nsys.exit()", {2}),
        ("import re\nre.compile('x')\ndf.eval('a + b')", set()),
    ],
)
def test_what_a_person_should_know_is_a_remark_at_its_line(code: str, lines: set[int]) -> None:
    assert {line for line, _ in read_program(code, "s", SERVERS).remarks} == lines


def test_calls_keep_their_order_and_lines() -> None:
    assert read_program("s.tools.functions.a.b(x=s.tools.c.d())", "s").calls == (
        ("a.b", 1),
        ("c.d", 1),
    )
    assert read_program("t = s\nt.tools.call('a:b')\nt.tools.c.d()", "s").calls == (
        ("a:b", 2),
        ("c.d", 3),
    )


@pytest.mark.defect("N11")
@pytest.mark.parametrize(
    "part",
    [
        "a{n} = a{m}\n",
        "x = (s.tools.shop.burn, x)\n",
        "f(",
        "s.tools.a{n}.b{n}()\n",
        "x = [[x, s.tools.c{n}.d]]\n",
    ],
)
def test_a_long_program_is_read_without_an_end_of_work(part: str) -> None:
    code = "a0 = s\n" + "".join(
        part.format(n=number + 1, m=number) for number in range(50_000 // len(part))
    )
    read_program(code[:50_000], "s", SERVERS)
