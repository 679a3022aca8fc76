-- Top ten: the ten highest bids of each auction, with their rank. (Of equal bids the earliest.)
-- sources: bid
CREATE TABLE q19 AS
  SELECT * FROM (
    SELECT *, ROW_NUMBER() OVER (PARTITION BY auction ORDER BY price DESC, dateTime, bidder, extra) AS rn FROM bid) q
  WHERE rn <= 10;

-- answer
SELECT * EXCLUDE (arrived) FROM (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY auction ORDER BY price DESC, dateTime, bidder, extra) AS rn FROM bid) q
WHERE rn <= 10
