"""The sample database of the `sqlite` server: a shop for stationery, the same each time."""

from __future__ import annotations

import random
import sqlite3
from datetime import date, timedelta

_SCHEMA = """
CREATE TABLE customers (
  id INTEGER PRIMARY KEY, name TEXT NOT NULL, email TEXT NOT NULL UNIQUE, city TEXT NOT NULL
);
CREATE TABLE products (
  id INTEGER PRIMARY KEY, name TEXT NOT NULL, category TEXT NOT NULL, price REAL NOT NULL
);
CREATE TABLE orders (
  id INTEGER PRIMARY KEY, customer_id INTEGER NOT NULL REFERENCES customers (id), ordered_on TEXT NOT NULL,
  status TEXT NOT NULL CHECK (status IN ('open', 'shipped', 'returned'))
);
CREATE TABLE order_items (
  order_id INTEGER NOT NULL REFERENCES orders (id), product_id INTEGER NOT NULL REFERENCES products (id),
  quantity INTEGER NOT NULL, PRIMARY KEY (order_id, product_id)
);
"""
_CUSTOMERS = (
    ("Ada Berg", "Oslo"),
    ("Ben Costa", "Lisbon"),
    ("Chloe Duval", "Lyon"),
    ("Dina Eriksen", "Bergen"),
    ("Emil Fischer", "Berlin"),
    ("Farah Haddad", "Tunis"),
    ("Gita Iyer", "Pune"),
    ("Hugo Jansen", "Utrecht"),
    ("Ines Keller", "Zurich"),
    ("Jun Li", "Taipei"),
    ("Kofi Mensah", "Accra"),
    ("Lena Novak", "Oslo"),
)
_PRODUCTS = (
    ("Notebook A5", "paper", 4.5),
    ("Sketchbook", "paper", 12.0),
    ("Postcards", "paper", 6.0),
    ("Fountain pen", "pens", 35.0),
    ("Gel pen", "pens", 2.2),
    ("Pencil set", "pens", 9.9),
    ("Desk lamp", "office", 48.0),
    ("Paper tray", "office", 14.5),
    ("Stapler", "office", 11.0),
    ("Tote bag", "bags", 18.0),
    ("Backpack", "bags", 79.0),
    ("Pencil case", "bags", 8.5),
)


def fill(connection: sqlite3.Connection) -> None:
    """Create the shop's tables in an empty database: 12 customers, 12 products, 40 orders."""
    source = random.Random(7)
    connection.executescript(_SCHEMA)
    for number, (name, city) in enumerate(_CUSTOMERS, start=1):
        email = f"{name.split()[0].lower()}@example.com"
        connection.execute("INSERT INTO customers VALUES (?, ?, ?, ?)", (number, name, email, city))
    for number, (name, category, price) in enumerate(_PRODUCTS, start=1):
        row = (number, name, category, price)
        connection.execute("INSERT INTO products VALUES (?, ?, ?, ?)", row)
    for order in range(1, 41):
        day = date(2026, 1, 1) + timedelta(days=order * 7 + source.randrange(7))
        status = source.choice(("open", "shipped", "shipped", "returned"))
        customer = source.randint(1, len(_CUSTOMERS))
        connection.execute(
            "INSERT INTO orders VALUES (?, ?, ?, ?)", (order, customer, day.isoformat(), status)
        )
        bought = source.sample(range(1, len(_PRODUCTS) + 1), source.randint(1, 3))
        for product in bought:
            item = (order, product, source.randint(1, 4))
            connection.execute("INSERT INTO order_items VALUES (?, ?, ?)", item)
    connection.commit()
