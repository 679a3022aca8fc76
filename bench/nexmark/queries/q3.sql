-- Local items: sellers in three states who sell in category 10. Both sides are kept for good.
-- sources: auction person
CREATE STREAM q3 AS
  SELECT p.name, p.city, p.state, a.id AS id
  FROM auction a JOIN person p WITHIN UNBOUNDED ON a.seller = p.id
  WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA');

-- answer
SELECT p.name, p.city, p.state, a.id AS id
FROM auction a JOIN person p ON a.seller = p.id
WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA')
