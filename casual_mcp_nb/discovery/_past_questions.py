"""How much past questions speak for a tool. Imported only to build an index, because it needs
numpy.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from itertools import chain

import numpy as np

from casual_mcp_nb.conversation.past_questions import PastQuestion
from casual_mcp_nb.discovery._ranking import Entries, Floats, added, weights_of


class PastScorer:
    """Scores tools by the past questions after which they were called.

    A tool gets the sum of its questions' cosines with the query. A word's weight in it is its
    inverse document frequency among the questions.

    Args:
        questions: The questions, each with the number of its tool.
        size: How many tools there are.
    """

    def __init__(self, questions: Sequence[tuple[PastQuestion, int]], size: int) -> None:
        self._questions = [question for question, _ in questions]
        self._tools = np.array([tool for _, tool in questions], dtype=np.intp)
        self._size = size
        # A question that several tools have is one text.
        numbers: dict[str, int] = {}
        for question in self._questions:
            numbers.setdefault(question.text, len(numbers))
        self._texts = np.array([numbers[each.text] for each in self._questions], dtype=np.intp)
        self._count = len(numbers)
        weights = [weights_of(text) for text in numbers]
        self._frequency = Counter(chain.from_iterable(weights))
        occurrences: dict[str, list[tuple[int, float]]] = defaultdict(list)
        for number, each in enumerate(weights):
            for term, value in self._unit(each).items():
                occurrences[term].append((number, value))
        self._entries: dict[str, Entries] = {}
        for term, pairs in occurrences.items():
            texts, values = zip(*pairs, strict=True)
            self._entries[term] = np.array(texts, np.intp), np.array(values)

    def scores(self, weights: Mapping[str, float]) -> Floats:
        """Compute each tool's sum of cosines with a query, given as weighted terms."""
        return added([((self._tools, self._cosines(weights)), 1.0)], self._size)

    def nearest(self, weights: Mapping[str, float], tool: int) -> tuple[PastQuestion, int]:
        """Find the past question for a tool that is the most like a query, and count those that are
        like it at all. There must be one.
        """
        cosines = np.where(self._tools == tool, self._cosines(weights), 0.0)
        return self._questions[int(cosines.argmax())], int(np.count_nonzero(cosines))

    def _cosines(self, weights: Mapping[str, float]) -> Floats:
        """Compute the cosine of each question with a query."""
        known = []
        for term, value in self._unit(weights).items():
            if term in self._entries:
                known.append((self._entries[term], value))
        cosines: Floats = added(known, self._count)[self._texts]
        return cosines

    def _unit(self, weights: Mapping[str, float]) -> dict[str, float]:
        """Weight terms by their rarity, with a total length of 1."""
        vector = {}
        for term, weight in weights.items():
            vector[term] = weight * math.log1p(self._count / (self._frequency[term] + 0.5))
        length = math.hypot(*vector.values()) or 1.0
        return {term: value / length for term, value in vector.items()}
