-- Average closing price by category: the highest bid of every auction while it was open, averaged.
-- sources: auction bid
CREATE TABLE q4 AS
  SELECT category, AVG(final) AS average FROM (
    SELECT a.category, MAX(b.price) AS final
    FROM auction a JOIN bid b WITHIN UNBOUNDED ON a.id = b.auction
    WHERE b.dateTime BETWEEN a.dateTime AND a.expires
    GROUP BY a.id, a.category) q
  GROUP BY category;

-- answer
SELECT category, AVG(final) AS average FROM (
  SELECT a.category, MAX(b.price) AS final
  FROM auction a JOIN bid b ON a.id = b.auction
  WHERE b.dateTime BETWEEN a.dateTime AND a.expires
  GROUP BY a.id, a.category) q
GROUP BY category
