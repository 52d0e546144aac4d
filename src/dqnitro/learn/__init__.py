"""Learning: the learner, and the transforms of its update. cpu/ and gpu/ hold what makes it fast there."""
