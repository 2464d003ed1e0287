"""How much past questions speak for a tool. Imported only to build an index, because it needs
numpy.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from itertools import chain
from operator import itemgetter

import numpy as np

from casual_mcp_nb.conversation.past_questions import PastQuestion
from casual_mcp_nb.discovery._ranking import Entries, Floats, added, weights_of

MOST_ALIKE = 5
"""How many questions count for a tool. Otherwise, a tool that is used often would gain by every
query that has a word in common with many of them.
"""


class PastScorer:
    """Scores tools by the past questions after which they were called.

    A tool gets the sum of the cosines of a query and the tool's most similar questions. A word's
    weight in it is its inverse document frequency among all questions.

    Args:
        questions: The questions, each with the number of its tool.
        size: How many tools there are.
    """

    def __init__(self, questions: Iterable[tuple[PastQuestion, int]], size: int) -> None:
        by_tool = sorted(questions, key=itemgetter(1))
        self._questions = [question for question, _ in by_tool]
        self._tools = np.array([tool for _, tool in by_tool], dtype=np.intp)
        firsts = np.searchsorted(self._tools, self._tools)
        self._counts = np.arange(len(by_tool)) - firsts < MOST_ALIKE
        self._size = size
        weights = [weights_of(question.text) for question in self._questions]
        self._frequency = Counter(chain.from_iterable(weights))
        occurrences: dict[str, list[tuple[int, float]]] = defaultdict(list)
        for number, each in enumerate(weights):
            for term, value in self._unit(each).items():
                occurrences[term].append((number, value))
        self._entries: dict[str, Entries] = {}
        for term, pairs in occurrences.items():
            numbers, values = zip(*pairs, strict=True)
            self._entries[term] = np.array(numbers, np.intp), np.array(values)

    def scores(self, weights: Mapping[str, float]) -> Floats:
        """Compute each tool's score for a query, given as weighted terms."""
        numbers, cosines = self._most_alike(weights)
        return added([((self._tools[numbers], cosines), 1.0)], self._size)

    def nearest(self, weights: Mapping[str, float], tool: int) -> tuple[PastQuestion, int]:
        """Find the past question for a tool that is the most like a query, and count those that add
        to its score. There must be one.
        """
        numbers, cosines = self._most_alike(weights)
        own = (self._tools[numbers] == tool) & (cosines > 0)
        return self._questions[numbers[own][0]], int(np.count_nonzero(own))

    def _most_alike(self, weights: Mapping[str, float]) -> Entries:
        """Find for each tool the questions that count, the most similar ones first, with their
        cosines.
        """
        cosines = self._cosines(weights)
        # The tools are in order already, so this sorts each one's questions.
        numbers = np.lexsort((-cosines, self._tools))[self._counts]
        return numbers, cosines[numbers]

    def _cosines(self, weights: Mapping[str, float]) -> Floats:
        """Compute the cosine of each question with a query."""
        known = []
        for term, value in self._unit(weights).items():
            if term in self._entries:
                known.append((self._entries[term], value))
        return added(known, len(self._questions))

    def _unit(self, weights: Mapping[str, float]) -> dict[str, float]:
        """Weight terms by their rarity, with a total length of 1."""
        vector = {}
        for term, weight in weights.items():
            vector[term] = weight * math.log1p(len(self._questions) / (self._frequency[term] + 0.5))
        length = math.hypot(*vector.values()) or 1.0
        return {term: value / length for term, value in vector.items()}
