"""What the ladder is compared with: the book and the notes, by author, title and address."""

from __future__ import annotations

from typing import NamedTuple


class Source(NamedTuple):
    """One text about speeding up DQN."""

    title: str
    url: str


BOOK = Source(
    "Maxim Lapan, Deep Reinforcement Learning Hands-On, 2nd ed. (Packt, 2020), chapter 9, “Ways to Speed up RL”",
    "https://github.com/PacktPublishing/Deep-Reinforcement-Learning-Hands-On-Second-Edition",
)
BLOG = Source("the blog post “Chapter 09 : Ways to Speed up RL” (2021, in Korean)", "https://liger82.github.io")
ARTICLE = Source(
    "“Speeding up DQN on PyTorch: how to solve Pong in 30 minutes”",
    "https://medium.com/@shmuma/speeding-up-dqn-on-pytorch-solving-pong-in-30-minutes-81a1bd2dff55",
)

# With a place for each of the three above: Markdown and HTML write links in different ways.
SENTENCE = (
    "The book is {book}. The notes are summaries of that chapter by its readers, such as {blog}, "
    "and Lapan's own log of an earlier round of the same work, told in his article {article}."
)
