"""A small catalog with queries, used without a data folder."""

from __future__ import annotations

from casual_mcp_nb.base.tool import ToolSpec

_TOOLS = """
files | read_file | Read the text of a file | path: Where the file is
files | write_file | Write text into a file; makes it when it does not exist | path: Where the file is; content: The text
files | list_directory | List what a folder holds | path: The folder
files | search_files | Find files by a pattern in their name | pattern: Such as *.txt; path: Where to start
mail | send_email | Send an email | to: Recipients; subject: The subject; body: The text
mail | search_inbox | Search messages in the inbox | query: Words or a sender
calendar | create_event | Create an event in the calendar | title: What it is; start: When it begins; attendees: Who comes
calendar | list_events | List events between two dates | start: First day; end: Last day
weather | get_forecast | Forecast of the weather for the coming days | city: The place; days: How many
weather | get_current_weather | Current temperature and conditions | city: The place
maps | geocode_address | Turn an address into coordinates | address: The address
maps | plan_route | Route between two places by car, bike or foot | from: Start; to: Destination; mode: How
git | git_log | Show the history of commits | repo_path: The repository; max_count: How many
git | git_diff | Show differences between branches or commits | repo_path: The repository; target: Branch or commit
git | create_branch | Create a branch | repo_path: The repository; name: Its name
database | run_query | Run an SQL query and return its rows | sql: The statement
database | describe_table | Columns and types of a table | table: Its name
math | evaluate | Calculate the value of an arithmetic expression | expression: Such as 2 * (3 + 4)
units | convert_units | Convert a value between units | value: The number; from_unit: Its unit; to_unit: The other unit
time | convert_time | Convert a time between time zones | time: The time; source: Time zone; target: Time zone
web | fetch_page | Fetch a web page as Markdown | url: Its address
web | web_search | Search the web | query: What to look for
charts | line_chart | Draw a line chart of a series | data: The values; title: Its title
finance | get_stock_price | Price of a share on the stock market | ticker: Its symbol
finance | exchange_rate | Rate between two currencies | base: Currency; quote: Currency
"""

_CASES = """
what is in /home/ana/notes.txt? | files:read_file
save this as report.md | files:write_file
which documents are in my folder | files:list_directory
drop Bob a message that the meeting moved | mail:send_email
schedule a meeting with Eve on Friday | calendar:create_event
will it rain in Oslo tomorrow | weather:get_forecast
how warm is it in Rome right now | weather:get_current_weather
directions from the station to the museum | maps:plan_route
what changed since the last commit | git:git_log
compare main and develop | git:git_diff
how many miles are 10 kilometres, converted | units:convert_units
compute 17% of 2,340 | math:evaluate
which columns does the orders table have | database:describe_table
open https://example.org/news and summarise it | web:fetch_page
plot the monthly sales | charts:line_chart
how much is a share of ACME | finance:get_stock_price
convert the currency from dollar to euro at today's rate | finance:exchange_rate
look up the weather in Paris, then send it by mail to Eve | weather:get_current_weather mail:send_email
"""


def _tool(line: str) -> ToolSpec:
    server, name, description, parameters = (part.strip() for part in line.split("|"))
    pairs = (parameter.split(":", 1) for parameter in parameters.split(";"))
    properties = {
        key.strip(): {"type": "string", "description": said.strip()} for key, said in pairs
    }
    return ToolSpec(server, name, description, {"type": "object", "properties": properties})


def _case(line: str) -> tuple[str, list[tuple[str, str]]]:
    query, needs = line.rsplit("|", 1)
    pairs = (need.partition(":") for need in needs.split())
    return query.strip(), [(server, tool) for server, _, tool in pairs]


TOOLS = [_tool(line) for line in _TOOLS.strip().splitlines()]
CASES = [_case(line) for line in _CASES.strip().splitlines()]
